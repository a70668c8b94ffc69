    push r14
    push rbx
    push rax
    mov rbx,rdi
    mov cl,0x1
    xor eax,eax
    lock cmpxchg BYTE PTR [rdi+0xd8],cl
    jne 15
    mov rax,QWORD PTR [rbx+0x80]
    mov eax,DWORD PTR [rax]
    cmp eax,0x1
    jne 16
0:
    mov rax,QWORD PTR [rbx+0x68]
    mov rdx,QWORD PTR [rax+0x38]
    bswap rdx
    xor rdx,QWORD PTR [rbx+0x48]
    test dl,0x1
    jne 2
    mov ecx,edx
    mov edi,DWORD PTR [rax+0x20]
    cmp QWORD PTR [rbx+0x30],rdi
    jne 4
    mov r8,QWORD PTR [rbx+0x38]
    shr rdx,0x10
    cmp cl,0x4
    jae 7
1:
    movzx ecx,WORD PTR [r8+0x80]
    movzx edi,WORD PTR [r8]
    cmp cx,di
    je 12
    movzx r9d,cx
    mov rcx,QWORD PTR [r8+0x100]
    mov r10d,DWORD PTR [r8+0x110]
    and r10d,r9d
    shl r10d,0x4
    mov rdi,QWORD PTR [rcx+r10*1]
    mov rcx,QWORD PTR [rcx+r10*1+0x8]
    mov r10,rcx
    shr r10,0x28
    cmp dx,r10w
    jne 12
    inc r9d
    mov WORD PTR [r8+0x80],r9w
    shr rcx,0x20
    jmp 10
2:
    dec DWORD PTR [rbx+0xd0]
    mov r14d,0x1
    je 19
3:
    xor edx,edx
    jmp 18
4:
    mov r8,QWORD PTR [rbx+0x98]
    mov r10d,edi
    bswap r10d
    mov r9d,DWORD PTR [rbx+0xc4]
    mov r8,QWORD PTR [r8+0x10]
    mov r11d,r10d
    shr r11d,0x9
    and r11d,0x7ff8
    mov r14,QWORD PTR [r8+r11*1]
    test r14,r14
    je 12
    and r10d,0xfff
    shl r10d,0x4
    mov r8,QWORD PTR [r14+r10*1+0x8]
    mov r11,QWORD PTR [r14+r10*1]
    mov r10,QWORD PTR [r14+r10*1+0x8]
    cmp r9d,r11d
    jne 5
    cmp r10,r8
    sete r9b
    cmp r8,0x2
    setae r10b
    test r10b,r9b
    jne 6
    jmp 12
5:
    cmp r8,0x2
    jb 12
    cmp r10,r8
    jne 12
    shr r11,0x20
    cmp r9d,r11d
    jne 12
6:
    mov QWORD PTR [rbx+0x30],rdi
    mov QWORD PTR [rbx+0x38],r8
    shr rdx,0x10
    cmp cl,0x4
    jb 1
7:
    test cl,0xc
    sete dil
    lea r9d,[rcx-0x10]
    cmp r9b,0x40
    setb r9b
    test dil,r9b
    je 12
    mov r9,QWORD PTR [r8+0x190]
    cmp DWORD PTR [r8+0x188],0x1
    jne 8
    movzx edi,dx
    cmp QWORD PTR [r9+0x18],rdi
    jbe 12
    mov r8,QWORD PTR [r9+0x10]
    mov r9,QWORD PTR [r9+0x20]
    mov r10d,edi
    shr r10d,0x6
    mov r11,QWORD PTR [r9+r10*8]
    bt r11,rdx
    jae 12
    lea r9,[r9+r10*8]
    mov rdi,QWORD PTR [r8+rdi*8]
    and edx,0x3f
    lock btr QWORD PTR [r9],rdx
    jb 9
    jmp 12
8:
    movzx edi,WORD PTR [r9+0x100]
    movzx r8d,WORD PTR [r9+0x80]
    cmp di,dx
    jne 12
    cmp di,r8w
    je 12
    mov rdi,QWORD PTR [r9+0x180]
    mov r8d,DWORD PTR [r9+0x188]
    dec r8d
    and r8d,edx
    movzx r8d,r8w
    mov rdi,QWORD PTR [rdi+r8*8]
    inc edx
    mov WORD PTR [r9+0x100],dx
9:
    shr cl,0x4
    or cl,0x80
10:
    mov edx,DWORD PTR [rbx+0xc0]
    inc edx
    mov DWORD PTR [rbx+0xc0],edx
    mov r8,QWORD PTR [rbx+0x40]
    add r8,rax
    cmp r8,QWORD PTR [rbx+0x78]
    jne 11
    mov r8,QWORD PTR [rbx+0x70]
    xor BYTE PTR [rbx+0x48],0x1
11:
    mov QWORD PTR [rbx+0x68],r8
    movzx r8d,cl
    mov r9,QWORD PTR [_ZN7mlx5_cq10completion5FACTS]
    movzx ecx,BYTE PTR [r9+r8*2+0x1]
    cmp BYTE PTR [r9+r8*2],0x1
    jne 13
    mov eax,DWORD PTR [rax+0x2c]
    bswap eax
    jmp 14
12:
    mov rdi,rbx
    call _ZN4mlx52cq15CompletionQueue9poll_rest
    jmp 17
13:
    xor eax,eax
14:
    xor r8d,r8d
    cmp cl,0x31
    sete r8b
    add rdi,rax
    add rdi,r8
    add QWORD PTR [rsi],rdi
    mov rax,QWORD PTR [rbx+0x90]
    mov DWORD PTR [rax+0x2c],edx
    mov rax,QWORD PTR [rbx+0x88]
    and edx,0xffffff
    bswap edx
    mov DWORD PTR [rax],edx
    mov r14d,0x1
    mov edx,0x1
    jmp 18
15:
    mov rdi,rbx
    mov r14,rsi
    call QWORD PTR [_ZN13mlx5_doorbell4lock13Lock$LT$T$GT$4wait]
    mov rsi,r14
    mov rax,QWORD PTR [rbx+0x80]
    mov eax,DWORD PTR [rax]
    cmp eax,0x1
    je 0
16:
    mov rdi,rbx
    call _ZN4mlx52cq15CompletionQueue9poll_rest
17:
    mov r14,rax
    and r14d,0x1
18:
    mov BYTE PTR [rbx+0xd8],0x0
    mov rax,r14
    add rsp,0x8
    pop rbx
    pop r14
    ret
19:
    mov rdi,rbx
    call QWORD PTR [_ZN4mlx52cq15CompletionQueue11check_alive]
    jmp 3
    mov BYTE PTR [rbx+0xd8],0x0
    mov rdi,rax
    call _Unwind_Resume@plt
