    push r14
    push rbx
    push rax
    mov rbx,rdi
    mov cl,0x1
    xor eax,eax
    lock cmpxchg BYTE PTR [rdi+0x170],cl
    jne 17
    mov rax,QWORD PTR [rbx+0x90]
    mov eax,DWORD PTR [rax]
    cmp eax,0x1
    jne 18
0:
    mov rax,QWORD PTR [rbx+0x78]
    mov edx,DWORD PTR [rax+0x3c]
    bswap edx
    xor edx,DWORD PTR [rbx+0x158]
    test dl,0xfd
    je 2
    test dl,0x1
    jne 7
    test dl,0xc
    setne cl
    lea edi,[rdx-0x10]
    cmp dil,0x40
    setae dil
    or dil,cl
    jne 16
    mov ecx,DWORD PTR [rax+0x20]
    cmp QWORD PTR [rbx+0x40],rcx
    jne 10
    mov rdi,QWORD PTR [rbx+0x48]
1:
    mov ecx,edx
    shr ecx,0x10
    mov r8,QWORD PTR [rdi+0x190]
    test r8,r8
    je 14
    cmp r8d,0x1
    jne 16
    mov r8,QWORD PTR [rdi+0x198]
    cmp QWORD PTR [r8+0x28],rcx
    jbe 16
    mov rdi,QWORD PTR [r8+0x20]
    movzx r9d,BYTE PTR [rdi+rcx*1]
    test r9b,r9b
    je 16
    xor r9d,r9d
    xchg BYTE PTR [rdi+rcx*1],r9b
    test r9b,r9b
    je 16
    mov rdi,QWORD PTR [r8+0x10]
    mov rdi,QWORD PTR [rdi+rcx*8]
    mov r9d,edx
    shr r9d,0x16
    mov r10d,0x1
    shl r10,cl
    mov rcx,QWORD PTR [r8+0x30]
    lock or QWORD PTR [rcx+r9*8],r10
    mov rcx,QWORD PTR [r8+0x40]
    mov BYTE PTR [rcx+r9*1],0x1
    mov rcx,QWORD PTR [r8+0x50]
    mov r8d,edx
    shr r8d,0x1c
    mov BYTE PTR [rcx+r8*1],0x1
    jmp 15
2:
    mov edi,DWORD PTR [rax+0x20]
    cmp QWORD PTR [rbx+0x30],rdi
    jne 9
    mov rcx,QWORD PTR [rbx+0x38]
    movzx r8d,WORD PTR [rcx+0x80]
    movzx edi,WORD PTR [rcx]
    cmp r8w,di
    je 16
3:
    shr edx,0x10
    movzx edi,r8w
    mov r10,QWORD PTR [rcx+0x100]
    and edi,DWORD PTR [rcx+0x128]
    shl edi,0x4
    mov r9,QWORD PTR [r10+rdi*1+0x8]
    mov rdi,QWORD PTR [r10+rdi*1]
    mov r11,r9
    shr r11,0x28
    cmp dx,r11w
    jne 11
4:
    inc r8d
    mov WORD PTR [rcx+0x80],r8w
    shr r9,0x20
    mov rcx,QWORD PTR [rbx+0x50]
    add rcx,rax
    cmp rcx,QWORD PTR [rbx+0x88]
    jne 6
5:
    xor BYTE PTR [rbx+0x158],0x1
    mov rcx,QWORD PTR [rbx+0x80]
6:
    movzx r8d,r9b
    mov r9,QWORD PTR [_ZN7mlx5_cq4kind5FACTS]
    movzx edx,BYTE PTR [r9+r8*4]
    cmp BYTE PTR [r9+r8*4+0x2],0x1
    jne 12
    mov eax,DWORD PTR [rax+0x2c]
    bswap eax
    jmp 13
7:
    dec DWORD PTR [rbx+0x168]
    mov r14d,0x1
    je 21
8:
    xor edx,edx
    jmp 20
9:
    mov rcx,QWORD PTR [rbx+0xa8]
    mov r8d,edi
    bswap r8d
    mov rcx,QWORD PTR [rcx+0x10]
    mov r9d,r8d
    shr r9d,0x9
    and r9d,0x7ff8
    mov r9,QWORD PTR [rcx+r9*1]
    test r9,r9
    je 16
    and r8d,0xfff
    shl r8d,0x4
    mov rcx,QWORD PTR [r9+r8*1+0x8]
    cmp rcx,0x2
    jb 16
    add r9,r8
    mov r8,QWORD PTR [r9]
    cmp DWORD PTR [rbx+0x15c],r8d
    jne 16
    mov r8,QWORD PTR [r9+0x8]
    test rcx,rcx
    je 16
    cmp r8,rcx
    jne 16
    mov QWORD PTR [rbx+0x30],rdi
    mov QWORD PTR [rbx+0x38],rcx
    movzx r8d,WORD PTR [rcx+0x80]
    movzx edi,WORD PTR [rcx]
    cmp r8w,di
    jne 3
    jmp 16
10:
    mov rdi,QWORD PTR [rbx+0xa8]
    mov r9d,ecx
    bswap r9d
    mov rdi,QWORD PTR [rdi+0x10]
    mov r8d,r9d
    shr r8d,0x9
    and r8d,0x7ff8
    mov r8,QWORD PTR [rdi+r8*1]
    test r8,r8
    je 16
    and r9d,0xfff
    shl r9d,0x4
    mov rdi,QWORD PTR [r8+r9*1+0x8]
    cmp rdi,0x2
    jb 16
    add r8,r9
    mov r9,QWORD PTR [r8]
    shr r9,0x20
    cmp DWORD PTR [rbx+0x15c],r9d
    jne 16
    mov r8,QWORD PTR [r8+0x8]
    test rdi,rdi
    je 16
    cmp r8,rdi
    jne 16
    mov QWORD PTR [rbx+0x40],rcx
    mov QWORD PTR [rbx+0x48],rdi
    jmp 1
11:
    mov r10d,edx
    sub r10d,r11d
    movzx edi,WORD PTR [rcx]
    sub edi,r8d
    cmp r10w,di
    jae 16
    add r10d,r8d
    mov rdi,QWORD PTR [rcx+0x100]
    mov r8d,r10d
    and r8d,DWORD PTR [rcx+0x128]
    movzx r8d,r8w
    shl r8d,0x4
    mov r9,QWORD PTR [rdi+r8*1+0x8]
    mov rdi,QWORD PTR [rdi+r8*1]
    mov r11,r9
    shr r11,0x28
    mov r8d,r10d
    cmp dx,r11w
    je 4
    jmp 16
12:
    xor eax,eax
13:
    xor r8d,r8d
    cmp dl,0x1
    sete r8b
    add rdi,rax
    add rdi,r8
    add QWORD PTR [rsi],rdi
    mov QWORD PTR [rbx+0x78],rcx
    mov eax,DWORD PTR [rbx+0x150]
    add eax,DWORD PTR [rbx+0x154]
    mov DWORD PTR [rbx+0x154],eax
    mov rcx,QWORD PTR [rbx+0xa0]
    mov DWORD PTR [rcx+0x2c],eax
    mov rcx,QWORD PTR [rbx+0x98]
    and eax,0xffffff
    bswap eax
    mov DWORD PTR [rcx],eax
    mov r14d,0x1
    mov edx,0x1
    jmp 20
14:
    mov r8,QWORD PTR [rdi+0x198]
    mov r9d,DWORD PTR [r8+0x100]
    movzx edi,WORD PTR [r8+0x80]
    cmp r9d,ecx
    jne 16
    cmp di,cx
    je 16
    mov rdi,QWORD PTR [r8+0x180]
    mov r9d,DWORD PTR [r8+0x188]
    dec r9d
    and r9d,ecx
    mov rdi,QWORD PTR [rdi+r9*8]
    inc ecx
    mov DWORD PTR [r8+0x100],ecx
15:
    shr dl,0x4
    or dl,0x80
    mov r9d,edx
    mov rcx,QWORD PTR [rbx+0x50]
    add rcx,rax
    cmp rcx,QWORD PTR [rbx+0x88]
    jne 6
    jmp 5
16:
    mov QWORD PTR [rbx+0x78],rax
    mov ecx,0x1
    mov rdi,rbx
    xor edx,edx
    call QWORD PTR [_ZN4mlx52cq15CompletionQueue9poll_rest]
    jmp 19
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
    mov BYTE PTR [rbx+0x170],0x0
    mov rax,r14
    add rsp,0x8
    pop rbx
    pop r14
    ret
21:
    mov rdi,rbx
    call QWORD PTR [_ZN4mlx52cq15CompletionQueue11check_alive]
    jmp 8
    mov BYTE PTR [rbx+0x170],0x0
    mov rdi,rax
    call _Unwind_Resume@plt
