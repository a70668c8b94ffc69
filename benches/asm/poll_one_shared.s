    push r14
    push rbx
    push rax
    mov rbx,rdi
    mov cl,0x1
    xor eax,eax
    lock cmpxchg BYTE PTR [rdi+0xe8],cl
    jne 17
    mov rax,QWORD PTR [rbx+0x90]
    mov eax,DWORD PTR [rax]
    cmp eax,0x1
    jne 18
0:
    mov rax,QWORD PTR [rbx+0x78]
    mov rdx,QWORD PTR [rax+0x38]
    bswap rdx
    xor rdx,QWORD PTR [rbx+0x58]
    test dl,0x1
    jne 1
    mov edi,DWORD PTR [rax+0x20]
    mov rcx,rdx
    shr rcx,0x10
    cmp dl,0x3
    ja 3
    cmp QWORD PTR [rbx+0x30],rdi
    jne 5
    mov r8,QWORD PTR [rbx+0x38]
    movzx r9d,WORD PTR [r8+0x80]
    movzx r11d,WORD PTR [r8]
    cmp r11w,r9w
    jne 6
    jmp 14
1:
    dec DWORD PTR [rbx+0xe0]
    mov r14d,0x1
    je 21
2:
    xor edx,edx
    jmp 20
3:
    test dl,0xc
    sete r8b
    lea r9d,[rdx-0x10]
    cmp r9b,0x40
    setb r9b
    test r8b,r9b
    je 14
    cmp QWORD PTR [rbx+0x40],rdi
    jne 8
    mov r9,QWORD PTR [rbx+0x48]
    mov r8,QWORD PTR [r9+0x198]
    cmp DWORD PTR [r9+0x190],0x1
    jne 9
4:
    movzx r9d,cx
    cmp QWORD PTR [r8+0x28],r9
    jbe 14
    mov r10,QWORD PTR [r8+0x20]
    movzx edi,BYTE PTR [r10+r9*1]
    test dil,dil
    je 14
    mov rdi,QWORD PTR [r8+0x10]
    mov rdi,QWORD PTR [rdi+r9*8]
    xor r11d,r11d
    xchg BYTE PTR [r10+r9*1],r11b
    test r11b,r11b
    je 14
    movzx r9d,cx
    mov r10d,r9d
    shr r10d,0x6
    mov r11,QWORD PTR [r8+0x30]
    mov r14d,0x1
    shl r14,cl
    lock or QWORD PTR [r11+r10*8],r14
    mov rcx,QWORD PTR [r8+0x40]
    mov BYTE PTR [rcx+r10*1],0x1
    mov rcx,QWORD PTR [r8+0x50]
    shr r9d,0xa
    mov BYTE PTR [rcx+r9*1],0x1
    jmp 10
5:
    mov r8,QWORD PTR [rbx+0xa8]
    mov r9d,edi
    bswap r9d
    mov edx,DWORD PTR [rbx+0xd4]
    mov r8,QWORD PTR [r8+0x10]
    mov r10d,r9d
    shr r10d,0x9
    and r10d,0x7ff8
    mov r10,QWORD PTR [r8+r10*1]
    test r10,r10
    je 14
    and r9d,0xfff
    shl r9d,0x4
    mov r8,QWORD PTR [r10+r9*1+0x8]
    mov r11,QWORD PTR [r10+r9*1]
    mov r9,QWORD PTR [r10+r9*1+0x8]
    cmp r8,0x2
    jb 14
    cmp r9,r8
    jne 14
    cmp edx,r11d
    jne 14
    mov QWORD PTR [rbx+0x30],rdi
    mov QWORD PTR [rbx+0x38],r8
    movzx r9d,WORD PTR [r8+0x80]
    movzx r11d,WORD PTR [r8]
    cmp r11w,r9w
    je 14
6:
    movzx edx,r9w
    mov r10,QWORD PTR [r8+0x100]
    and edx,DWORD PTR [r8+0x110]
    shl edx,0x4
    mov rdi,QWORD PTR [r10+rdx*1]
    mov rdx,QWORD PTR [r10+rdx*1+0x8]
    mov r14,rdx
    shr r14,0x28
    cmp cx,r14w
    jne 13
7:
    inc r9d
    mov WORD PTR [r8+0x80],r9w
    shr rdx,0x20
    jmp 11
8:
    mov r9,QWORD PTR [rbx+0xa8]
    mov r10d,edi
    bswap r10d
    mov r8d,DWORD PTR [rbx+0xd4]
    mov r9,QWORD PTR [r9+0x10]
    mov r11d,r10d
    shr r11d,0x9
    and r11d,0x7ff8
    mov r14,QWORD PTR [r9+r11*1]
    test r14,r14
    je 14
    and r10d,0xfff
    shl r10d,0x4
    mov r9,QWORD PTR [r14+r10*1+0x8]
    mov r11,QWORD PTR [r14+r10*1]
    mov r10,QWORD PTR [r14+r10*1+0x8]
    cmp r9,0x2
    jb 14
    cmp r10,r9
    jne 14
    shr r11,0x20
    cmp r8d,r11d
    jne 14
    mov QWORD PTR [rbx+0x40],rdi
    mov QWORD PTR [rbx+0x48],r9
    mov r8,QWORD PTR [r9+0x198]
    cmp DWORD PTR [r9+0x190],0x1
    je 4
9:
    mov r9d,DWORD PTR [r8+0x100]
    movzx edi,WORD PTR [r8+0x80]
    movzx r10d,cx
    cmp r9d,r10d
    jne 14
    cmp di,cx
    je 14
    mov rdi,QWORD PTR [r8+0x180]
    mov r10d,DWORD PTR [r8+0x188]
    dec r10d
    and r10d,ecx
    movzx ecx,r10w
    mov rdi,QWORD PTR [rdi+rcx*8]
    inc r9d
    mov DWORD PTR [r8+0x100],r9d
10:
    shr dl,0x4
    or dl,0x80
11:
    mov ecx,DWORD PTR [rbx+0xd0]
    inc ecx
    mov DWORD PTR [rbx+0xd0],ecx
    mov r8,QWORD PTR [rbx+0x50]
    add r8,rax
    cmp r8,QWORD PTR [rbx+0x88]
    jne 12
    mov r8,QWORD PTR [rbx+0x80]
    xor BYTE PTR [rbx+0x58],0x1
12:
    mov QWORD PTR [rbx+0x78],r8
    movzx r8d,dl
    mov r9,QWORD PTR [_ZN7mlx5_cq4kind5FACTS]
    movzx edx,BYTE PTR [r9+r8*4+0x1]
    cmp BYTE PTR [r9+r8*4],0x1
    jne 15
    mov eax,DWORD PTR [rax+0x2c]
    bswap eax
    jmp 16
13:
    mov r10d,ecx
    sub r10d,r14d
    sub r11d,r9d
    cmp r10w,r11w
    jae 14
    add r10d,r9d
    mov rdx,QWORD PTR [r8+0x100]
    mov edi,r10d
    and edi,DWORD PTR [r8+0x110]
    movzx r9d,di
    shl r9d,0x4
    mov rdi,QWORD PTR [rdx+r9*1]
    mov rdx,QWORD PTR [rdx+r9*1+0x8]
    mov r11,rdx
    shr r11,0x28
    mov r9d,r10d
    cmp cx,r11w
    je 7
14:
    mov ecx,0x1
    mov rdi,rbx
    xor edx,edx
    call QWORD PTR [_ZN4mlx52cq15CompletionQueue9poll_rest]
    jmp 19
15:
    xor eax,eax
16:
    xor r8d,r8d
    cmp dl,0x1
    sete r8b
    add rdi,rax
    add rdi,r8
    add QWORD PTR [rsi],rdi
    mov rax,QWORD PTR [rbx+0xa0]
    mov DWORD PTR [rax+0x2c],ecx
    mov rax,QWORD PTR [rbx+0x98]
    and ecx,0xffffff
    bswap ecx
    mov DWORD PTR [rax],ecx
    mov r14d,0x1
    mov edx,0x1
    jmp 20
17:
    mov rdi,rbx
    mov r14,rsi
    call QWORD PTR [_ZN13mlx5_doorbell4lock13Lock$LT$T$GT$4wait]
    mov rsi,r14
    mov rax,QWORD PTR [rbx+0x90]
    mov eax,DWORD PTR [rax]
    cmp eax,0x1
    je 0
18:
    mov ecx,0x1
    mov rdi,rbx
    xor edx,edx
    call QWORD PTR [_ZN4mlx52cq15CompletionQueue9poll_rest]
19:
    mov r14,rax
    and r14d,0x1
20:
    mov BYTE PTR [rbx+0xe8],0x0
    mov rax,r14
    add rsp,0x8
    pop rbx
    pop r14
    ret
21:
    mov rdi,rbx
    call QWORD PTR [_ZN4mlx52cq15CompletionQueue11check_alive]
    jmp 2
    mov BYTE PTR [rbx+0xe8],0x0
    mov rdi,rax
    call _Unwind_Resume@plt
